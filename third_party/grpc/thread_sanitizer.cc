// For --config=tsan: Debian's gRPC, its Abseil, protobuf and OpenSSL are not built for the
// sanitizer, which does not see their locks and so takes what they order for races. Races without
// them in either stack are reported as ever. Nor does it see gRPC close an accepted connection,
// whose number a file of ours may have next.
#ifdef __SANITIZE_THREAD__

extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::\n"
         "race:libgrpc\n"
         "race:libgpr\n"
         "race:libupb\n"
         "race:libabsl\n"
         "race:google::protobuf\n"
         "race:megatrain::ConnectionListener::Run\n"
         "race:libcrypto\n"
         "race:libssl\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgpr.so\n";
}

#endif
