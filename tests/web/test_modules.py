"""modules_test.js: what the pure modules promise, asked inside the browser."""

from conftest import open_view


def test_every_promise_of_the_pure_modules_holds(page, stub):
    open_view(page, stub.url, "connect")
    results = page.evaluate("import('/tests/modules_test.js').then(module => module.run())")
    assert len(results) > 15
    assert [f"{name}: {error}" for name, error in results if error] == []
