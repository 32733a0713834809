"""The same broker over sockets: the asyncio driver of the overlay, its processes, and the history reader."""
