"""How often objects could not be made, for those who watch an operator."""

from collections import Counter
from dataclasses import dataclass, field

from fairway.kube.resource import DEPLOYMENT, SERVICE, ObjectRef, Resource
from fairway.runtime.store import StoreView
from fairway.runtime.world import Applied

COUNTED = (DEPLOYMENT, SERVICE)


@dataclass(slots=True)
class CreationErrors:
    """How often an object that did not exist could not be made either, by kind."""

    by_kind: Counter[Resource] = field(default_factory=Counter)

    def count(self, applied: Applied, store: StoreView) -> None:
        refused: list[ObjectRef] = [*applied.name_taken, *(rejection.ref for rejection in applied.rejected)]
        for ref in refused:
            if ref.resource in COUNTED and store.get(ref.resource, ref.namespace, ref.name) is None:
                self.by_kind[ref.resource] += 1
