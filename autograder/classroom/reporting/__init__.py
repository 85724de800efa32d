"""Write one page about a class and a lesson."""
