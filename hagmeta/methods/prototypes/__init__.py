"""Methods that compare nodes with prototypes."""
