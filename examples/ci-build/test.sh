set -eu
test "$(greet)" = "hello, world"
test "$(greet Ada)" = "hello, Ada"
