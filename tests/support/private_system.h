// Gives a process kernel resources of its own (namespaces), for tests whose programs listen on all
// interfaces, have fixed ports or leave processes behind. Needs root.
#ifndef MEGATRAIN_TESTS_SUPPORT_PRIVATE_SYSTEM_H_
#define MEGATRAIN_TESTS_SUPPORT_PRIVATE_SYSTEM_H_

#include <string>

namespace megatrain {

// Gives this process a network of its own, which has the loopback interface alone. Returns "" or
// what failed.
std::string EnterPrivateNetwork();

// Returns in a child process that has a system of its own: network (as above), host name, /dev/shm,
// and processes, all of which end with the child. Mounts that it makes are seen by nobody else. The
// caller's process waits for the child and exits with its exit code, or 128 plus the signal that
// ended it. Returns "" or what failed. REQUIRES: the process has one thread.
std::string EnterPrivateSystem();

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SUPPORT_PRIVATE_SYSTEM_H_
