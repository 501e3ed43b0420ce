"""A cluster with a worker on each of two nodes, and one elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rankscope.store import rank_files
from rankscope.store.executors import cluster
from runs.many_ranks import make_large
from store.nodes.cluster import HOSTS, WITHOUT, DaskNodes


@pytest.fixture(scope="package")
def dask_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskNodes]:
    pytest.importorskip("distributed", reason="Dask is missing: pip install 'rankscope[dask]'")
    made = DaskNodes(tmp_path_factory.mktemp("cluster"))
    try:
        if not made.are_possible():
            pytest.skip(WITHOUT)
        for host in HOSTS:
            made.worker(host)
        made.wait_for(cluster(made.address).client, list(HOSTS))
        yield made
        cluster(made.address).client.close()
    finally:
        made.stop()
        cluster.cache_clear()


@pytest.fixture
def nodes(dask_nodes: DaskNodes, monkeypatch: pytest.MonkeyPatch) -> DaskNodes:
    """All three workers are there; runs of a few ranks count as large, and hosts of a few bytes as well."""
    client = cluster(dask_nodes.address).client
    there = cluster(dask_nodes.address).workers()
    for host in HOSTS:
        if not there.get(host):
            dask_nodes.worker(host)
    dask_nodes.wait_for(client, list(HOSTS))
    make_large(monkeypatch)
    monkeypatch.setattr(rank_files, "OWN_BYTES", 1)
    return dask_nodes
