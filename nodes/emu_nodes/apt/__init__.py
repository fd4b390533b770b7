"""Programs of APT: shares of the first layer, where what they need is."""
