// xattr set NAME VALUE PATH: sets an extended attribute. xattr get NAME PATH: prints it.
// xattr cap PATH: gives a program CAP_NET_BIND_SERVICE, as setcap does.
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

int main(int argc, char **argv) {
  char value[256];
  long n = -1;
  if (argc == 5 && !strcmp(argv[1], "set"))
    n = setxattr(argv[4], argv[2], argv[3], strlen(argv[3]), 0);
  if (argc == 4 && !strcmp(argv[1], "get") && (n = getxattr(argv[3], argv[2], value, sizeof value)) >= 0)
    printf("%.*s\n", (int)n, value);
  if (argc == 3 && !strcmp(argv[1], "cap")) {
    struct vfs_cap_data cap = {VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, {{1 << CAP_NET_BIND_SERVICE, 0}}};
    n = setxattr(argv[2], "security.capability", &cap, sizeof cap, 0);
  }
  if (n < 0)
    printf("xattr: %s\n", strerror(errno));
  return n < 0;
}
