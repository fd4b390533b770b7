"""Hosts made of network namespaces, and engines that start agents on them."""
