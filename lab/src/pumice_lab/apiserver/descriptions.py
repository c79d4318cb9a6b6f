"""Texts of ``kubectl explain`` for the fields that every object has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA: Final = "Standard object's metadata: its name, its labels, who owns it."
TYPE: Final[Mapping[str, str]] = {
    "apiVersion": "APIVersion defines by which version of the schema the object is written.",
    "kind": "Kind names the schema of the object, in CamelCase.",
}
OBJECT_META: Final[Mapping[str, str]] = {
    "annotations": "Annotations are notes for tools; nobody selects by them.",
    "creationTimestamp": "CreationTimestamp is a timestamp of the server: when the object was made. Read-only.",
    "deletionGracePeriodSeconds": "Seconds that the object had from its deletion on to end well. Read-only.",
    "deletionTimestamp": "When the object goes, once somebody has asked for that. Read-only.",
    "finalizers": "Who has to agree before the object goes; each takes its own entry off.",
    "generateName": "What the server makes a name of where none is given.",
    "generation": "Counts the changes of what is wanted. Read-only.",
    "labels": "Labels are keys and values to select by.",
    "managedFields": "Which manager set which fields.",
    "name": "Name of the object, unique for its kind in its namespace. Cannot be changed.",
    "namespace": "Namespace within which the name is unique. Cannot be changed.",
    "ownerReferences": "The objects without which this one goes; one of them may be its controller.",
    "resourceVersion": "Changes with each write, and is compared for equality alone. Read-only.",
    "uid": "Tells the object from all others of any time. Read-only.",
}
