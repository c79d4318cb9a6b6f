"""The screen of ``pumice top``: values that are taken, pages that are made of them, and the program that shows them."""
