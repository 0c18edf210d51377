from demesne import _client

_client.LINGER = "1s"  # the server is to end with the tests
