"""What a Job's plugins make beside it and give to its pods, a file each (spec volcano-core 18)."""
