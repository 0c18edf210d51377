"""Usage: retry.py ADDRESS PORT FIRST SECOND

A TLS 1.3 client, by libssl, whose first ClientHello is for FIRST. When the server answers with
HelloRetryRequest, the second one is for SECOND. It writes how often the server asked for another
ClientHello and for which name the server's certificate is, or what went wrong.
"""
import ctypes
import socket
import sys

address, port, first, second = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), sys.argv[4].encode()
ssl, crypto = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
P, I, L, S = ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p


def function(library, name, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


TLS_client_method = function(ssl, "TLS_client_method", P)
SSL_CTX_new = function(ssl, "SSL_CTX_new", P, P)
SSL_CTX_ctrl = function(ssl, "SSL_CTX_ctrl", L, P, I, L, P)
SSL_new = function(ssl, "SSL_new", P, P)
SSL_ctrl = function(ssl, "SSL_ctrl", L, P, I, L, S)
SSL_set_fd = function(ssl, "SSL_set_fd", I, P, I)
SSL_connect = function(ssl, "SSL_connect", I, P)
SSL_get1_peer_certificate = function(ssl, "SSL_get1_peer_certificate", P, P)
X509_get_subject_name = function(crypto, "X509_get_subject_name", P, P)
X509_NAME_oneline = function(crypto, "X509_NAME_oneline", S, P, P, I)

MESSAGE = ctypes.CFUNCTYPE(None, I, I, I, P, ctypes.c_size_t, P, P)
SSL_CTX_set_msg_callback = function(ssl, "SSL_CTX_set_msg_callback", None, P, MESSAGE)
RETRY = bytes.fromhex("CF21AD74E59A6111BE1D8C021E65B891C2A211167ABB8C5E079E09E2C8A8339C")
retries = 0


def set_name(s, name):
    SSL_ctrl(s, 55, 0, name)  # SSL_CTRL_SET_TLSEXT_HOSTNAME


@MESSAGE
def seen(written, version, kind, message, size, s, _):
    global retries
    b = ctypes.string_at(message, size)
    if not written and kind == 22 and b[:1] == b"\x02" and b[6:38] == RETRY:
        retries += 1
        set_name(s, second)


context = SSL_CTX_new(TLS_client_method())
SSL_CTX_ctrl(context, 123, 0x0304, None)  # SSL_CTRL_SET_MIN_PROTO_VERSION
SSL_CTX_set_msg_callback(context, seen)
s = SSL_new(context)
SSL_ctrl(s, 92, 0, b"X25519:P-384")  # SSL_CTRL_SET_GROUPS_LIST: the key share is for the first
set_name(s, first)
c = socket.create_connection((address, port), timeout=60)
c.settimeout(None)
SSL_set_fd(s, c.fileno())
if SSL_connect(s) == 1:
    subject = X509_NAME_oneline(X509_get_subject_name(SSL_get1_peer_certificate(s)), None, 0)
    print(retries, "retry:", subject.decode())
else:
    print(retries, "retry: no TLS")
