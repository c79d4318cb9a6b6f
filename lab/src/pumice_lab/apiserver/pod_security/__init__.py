"""Pod Security admission: the three levels of Kubernetes' Pod Security Standards, by the labels of a namespace."""
