"""A spider that logs in by a form, and then crawls pages that only members see."""

import shoal


class Club(shoal.Spider):
    def start(self):
        yield shoal.Follow(url=f"{self.site}/login", callback=self.log_in)

    def log_in(self, page):
        yield page.submit("form", {"user": self.user, "password": self.password}, callback=self.member)

    def member(self, page):
        yield {"member": page.title}
        yield from page.follow("a", callback=self.member)
