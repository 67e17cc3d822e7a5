"""Write a report as one page, and the page to explore."""
