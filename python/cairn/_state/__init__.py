"""What a trainer may put into a state, and the layout and the bytes that become of it."""
