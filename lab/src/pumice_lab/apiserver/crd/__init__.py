"""CustomResourceDefinitions: new kinds at run time, with schemas."""
