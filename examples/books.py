"""A spider for a shop of books: lists of books lead to further lists and to authors."""

import shoal


class Books(shoal.Spider):
    urls = ("http://127.0.0.1:8000/list1.html",)

    def parse(self, page):
        for book in page.css("li.book"):
            yield {"title": book.css_first("b").text(), "list": page.url}
        yield from page.follow("a.next")
        yield from page.follow("a.author", callback="author", data={"list": page.url})

    def author(self, page):
        yield {"author": page.title, "list": page.data["list"]}
