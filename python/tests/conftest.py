from demesne import _http

_http.LINGER = "1s"  # the server is to end with the tests
