"""What all rooms stand on: errors, the messages of the wire contract, the native library, time-outs, signals."""
