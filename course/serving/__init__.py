"""What lesson 11 gives: requests, a pass over pieces of many of them, and clocks that time a schedule."""
