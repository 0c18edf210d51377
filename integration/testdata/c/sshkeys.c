// sshkeys: asks the agent at $SSH_AUTH_SOCK for its keys, and prints their number and comments.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static unsigned number(const unsigned char *at) { return at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

int main(void) {
  static unsigned char got[65536];
  struct sockaddr_un at = {AF_UNIX};
  size_t n = 0;
  ssize_t more;
  int s = socket(AF_UNIX, SOCK_STREAM, 0);
  strncpy(at.sun_path, getenv("SSH_AUTH_SOCK") ?: "", sizeof at.sun_path - 1);
  if (connect(s, (struct sockaddr *)&at, sizeof at) || write(s, "\0\0\0\1\13", 5) != 5) {
    perror("sshkeys");
    return 1;
  }
  while ((n < 4 || n < 4 + number(got)) && (more = read(s, got + n, sizeof got - n)) > 0)
    n += more;
  if (n < 9 || got[4] != 12)
    return 1;
  unsigned count = number(got + 5);
  unsigned char *p = got + 9;
  printf("%u keys:", count);
  while (count--) {
    p += 4 + number(p); // the key
    printf(" %.*s", (int)number(p), p + 4);
    p += 4 + number(p);
  }
  puts("");
  return 0;
}
