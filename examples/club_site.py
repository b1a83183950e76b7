"""A small site with a login, for examples/club.py. Run: python examples/club_site.py PORT"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

FORM = "<form method=post><input type=hidden name=token value=t1><input name=user><input name=password></form>"


class Club(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/login":
            self.answer(200, FORM)
        elif "session=s1" not in self.headers.get("Cookie", ""):
            self.answer(302, location="/login")
        else:
            name = self.path.rpartition("/")[2]
            self.answer(200, f"<title>{name}</title><a href=/members/ada>Ada</a> <a href=/members/bo>Bo</a>")

    def do_POST(self):
        fields = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if fields == {"token": ["t1"], "user": ["ann"], "password": ["tide"]}:
            self.answer(303, location="/members/ada", cookie="session=s1; Path=/; HttpOnly")
        else:
            self.answer(403, "Wrong user or password.")

    def answer(self, status, text="", location="", cookie=""):
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        for name, value in (("Location", location), ("Set-Cookie", cookie)):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Club).serve_forever()
