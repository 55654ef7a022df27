"""Stand-in: see torch/__init__.py."""


def _get_device_index(device, optional=False):
    return 0 if device is None and optional else int(device)
