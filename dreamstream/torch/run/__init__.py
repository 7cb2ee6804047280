"""What a call computes, on what, and where its states are kept."""
