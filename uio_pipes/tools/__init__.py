"""What only the ``uio`` command does: its panels (``cli``), what they write (``data``) and show (``reports``)."""
