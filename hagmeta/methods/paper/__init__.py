"""HAG-Meta, and the methods that are HAG-Meta without some of its parts."""
