# Uses docker compose as a plugin of the directory $1, in a sandbox with a Docker socket: see integration/docker.sh.
set -eu
export HOME=/tmp
mkdir -p /tmp/.docker
ln -s "$1" /tmp/.docker/cli-plugins
docker compose up -d >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
until curl -sf http://localhost:8000/i; do sleep .05; done
docker compose exec -T web sh -c 'echo $A'
test "$(docker compose ps -q | wc -l)" = 3
docker compose logs web | grep -q up
docker compose run --rm -T api true 2>/tmp/log
docker compose restart -t 1 web 2>/tmp/log
docker compose down -v -t 1 2>/tmp/log
test -z "$(docker ps -aq)$(docker volume ls -q)"
