"""Programs of torch.distributed on machines that are not there, in virtual time.

Decides when the bytes of a call would be there: by the streams that gloo would write
over the links of a cluster. It must not know what the programs compute.
Start at ``gloo_transport.py``, then ``gloo_operations.py``.
"""
