// LeakSanitizer's exceptions for programs that start MPI: Open MPI frees little at its end, and its
// parts are unloaded before the leaks are told.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libmpi.so\nleak:libopen-rte.so\nleak:libopen-pal.so\nleak:libpmix.so\nleak:mca_\n"
         "leak:libevent\nleak:libhwloc.so\nleak:<unknown module>\n";
}
