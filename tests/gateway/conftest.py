"""One cluster for all tests that leave it as it was; those that break something start their own."""

import pytest
from api import Api
from shardline_cluster import Cluster


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as shared:
        shared.await_ready()
        yield shared


@pytest.fixture(scope="session")
def api(cluster):
    return Api(cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and "cluster" in item.fixturenames and "cluster" in item.funcargs:
        report.sections.append(("cluster", item.funcargs["cluster"].logs()))
    return report
