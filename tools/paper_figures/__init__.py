"""The paper's simulation study (section VI-B): its settings, contenders and figures."""
