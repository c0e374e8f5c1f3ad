// A SQLite file system over the real one, on which writes can be made to fail, and which keeps
// aside what was synced: what a power cut would leave.
#ifndef MEGATRAIN_TESTS_SERVER_STORE_FAULTY_VFS_H_
#define MEGATRAIN_TESTS_SERVER_STORE_FAULTY_VFS_H_

#include <cstdint>
#include <limits>
#include <string>

namespace megatrain {

// Becomes SQLite's default when first used. For tests of one thread.
class FaultyVfs {
 public:
  static FaultyVfs* Install();

  // From the `operations`-th write or sync on (0: the next), all fail with `code` until Heal.
  void FailAfter(int64_t operations, int code) {
    remaining_ = operations;
    code_ = code;
  }
  void Heal() {
    remaining_ = kNever;
    system_error_ = 0;
  }
  // The errno that SQLite is told of an error, until Heal; 0 = the real one.
  void set_system_error(int error) { system_error_ = error; }
  // Writes and syncs so far.
  int64_t operations() const { return operations_; }

  // Each sync of a file copies it here under its name; "" = not.
  void set_durable_directory(const std::string& directory) { durable_directory_ = directory; }

  // Called by the files.
  int BeforeOperation();
  int system_error() const { return system_error_; }
  void AfterSync(const std::string& path) const;
  void AfterSyncedDelete(const std::string& path) const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t remaining_ = kNever;
  int64_t operations_ = 0;
  int code_ = 0;
  int system_error_ = 0;
  std::string durable_directory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_STORE_FAULTY_VFS_H_
