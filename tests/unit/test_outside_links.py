from shoal.worker.outside_links import OutsideLinks


def test_a_refused_link_is_remembered_for_pages_of_the_same_host() -> None:
    outside = OutsideLinks()
    outside.add(("a.example", "http://b.example/"))
    assert ("a.example", "http://b.example/") in outside
    assert ("a.example", "http://b.example/c") not in outside
    # Pages of b.example may link to their own host.
    assert ("b.example", "http://b.example/") not in outside


def test_refused_links_do_not_fill_the_memory() -> None:
    outside = OutsideLinks()
    links = [("a.example", f"http://b.example/{number}") for number in range(25_000)]
    for link in links:
        outside.add(link)
    assert links[-1] in outside
    assert sum(link in outside for link in links) <= 10_000
