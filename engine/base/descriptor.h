// Owns an open file descriptor and closes it when it goes out of scope.
#ifndef MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_
#define MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace megatrain {

class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd`; a negative value means that nothing is open.
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  // Swaps: `other` then owns the descriptor that this object had.
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }  // negative if nothing is open
  bool is_open() const { return fd_ >= 0; }
  // Returns the descriptor, which the caller must close from then on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DESCRIPTOR_H_
