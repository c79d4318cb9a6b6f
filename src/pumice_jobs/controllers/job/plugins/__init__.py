"""A Job's plugins, a file each: objects that they make beside it, and what they give to its pods."""
