"""What people use: connect, pose queries, receive labelled grids."""
