"""Asks a server on this machine, and one in the world, for the answers.

points: 0
says: asked
"""

import socket
import urllib.request

socket.setdefaulttimeout(2)
for address in ("127.0.0.1", "localhost", "0.0.0.0", "::1", "::ffff:127.0.0.1"):
    try:
        socket.create_connection((address, FACTS["port"])).close()
        print("GOT through to", address)
    except OSError:
        pass
for url in (f"http://127.0.0.1:{FACTS['port']}/", "http://192.0.2.1/"):
    try:
        print("GOT", urllib.request.urlopen(url).read())
    except OSError:
        pass
for family in (socket.AF_INET, socket.AF_INET6):
    with socket.socket(family, socket.SOCK_DGRAM) as talk:
        try:
            talk.sendto(b"answers?", ("192.0.2.1", 53))
            print("GOT a packet out")
        except OSError:
            pass
print("asked")
