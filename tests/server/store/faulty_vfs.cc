#include "tests/server/store/faulty_vfs.h"

#include <sqlite3.h>

#include <filesystem>
#include <new>

namespace megatrain {
namespace {

sqlite3_vfs* g_real = nullptr;
FaultyVfs* g_faulty = nullptr;

// SQLite allocates it as szOsFile bytes; the real file follows in the same block.
struct FaultyFile {
  sqlite3_file base;
  sqlite3_file* real;
  std::string* path;
};

FaultyFile* Of(sqlite3_file* file) { return reinterpret_cast<FaultyFile*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Of(file)->real; }

int Close(sqlite3_file* file) {
  delete Of(file)->path;
  return Real(file)->pMethods->xClose(Real(file));
}
int Read(sqlite3_file* file, void* data, int bytes, sqlite3_int64 offset) {
  return Real(file)->pMethods->xRead(Real(file), data, bytes, offset);
}
int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  const int result = g_faulty->BeforeOperation();
  return result != SQLITE_OK ? result
                             : Real(file)->pMethods->xWrite(Real(file), data, bytes, offset);
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Real(file)->pMethods->xTruncate(Real(file), size);
}
int Sync(sqlite3_file* file, int flags) {
  int result = g_faulty->BeforeOperation();
  if (result != SQLITE_OK) return result == SQLITE_FULL ? SQLITE_OK : result;
  result = Real(file)->pMethods->xSync(Real(file), flags);
  if (result == SQLITE_OK) g_faulty->AfterSync(*Of(file)->path);
  return result;
}
int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Real(file)->pMethods->xFileSize(Real(file), size);
}
int Lock(sqlite3_file* file, int level) { return Real(file)->pMethods->xLock(Real(file), level); }
int Unlock(sqlite3_file* file, int level) {
  return Real(file)->pMethods->xUnlock(Real(file), level);
}
int CheckReservedLock(sqlite3_file* file, int* result) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), result);
}
int FileControl(sqlite3_file* file, int operation, void* argument) {
  if (operation == SQLITE_FCNTL_LAST_ERRNO && g_faulty->system_error() != 0) {
    *static_cast<int*>(argument) = g_faulty->system_error();
    return SQLITE_OK;
  }
  return Real(file)->pMethods->xFileControl(Real(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int DeviceCharacteristics(sqlite3_file* file) {
  return Real(file)->pMethods->xDeviceCharacteristics(Real(file));
}
int ShmMap(sqlite3_file* file, int page, int bytes, int extend, void volatile** address) {
  return Real(file)->pMethods->xShmMap(Real(file), page, bytes, extend, address);
}
int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
  return Real(file)->pMethods->xShmLock(Real(file), offset, count, flags);
}
void ShmBarrier(sqlite3_file* file) { Real(file)->pMethods->xShmBarrier(Real(file)); }
int ShmUnmap(sqlite3_file* file, int remove) {
  return Real(file)->pMethods->xShmUnmap(Real(file), remove);
}

const sqlite3_io_methods kMethods = {2,
                                     Close,
                                     Read,
                                     Write,
                                     Truncate,
                                     Sync,
                                     FileSize,
                                     Lock,
                                     Unlock,
                                     CheckReservedLock,
                                     FileControl,
                                     SectorSize,
                                     DeviceCharacteristics,
                                     ShmMap,
                                     ShmLock,
                                     ShmBarrier,
                                     ShmUnmap,
                                     nullptr,
                                     nullptr};

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  FaultyFile* const faulty = Of(file);
  faulty->base.pMethods = nullptr;
  faulty->real = reinterpret_cast<sqlite3_file*>(faulty + 1);
  const int result = g_real->xOpen(g_real, name, faulty->real, flags, out_flags);
  if (result != SQLITE_OK) return result;
  faulty->path = new std::string(name == nullptr ? "" : name);
  faulty->base.pMethods = &kMethods;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs*, const char* name, int sync_directory) {
  const int result = g_real->xDelete(g_real, name, sync_directory);
  if (result == SQLITE_OK && sync_directory != 0) g_faulty->AfterSyncedDelete(name);
  return result;
}

int GetLastError(sqlite3_vfs*, int bytes, char* text) {
  const int error = g_faulty->system_error();
  return error != 0 ? error : g_real->xGetLastError(g_real, bytes, text);
}

}  // namespace

FaultyVfs* FaultyVfs::Install() {
  if (g_faulty == nullptr) {
    g_real = sqlite3_vfs_find(nullptr);
    g_faulty = new FaultyVfs;
    static sqlite3_vfs vfs = *g_real;
    vfs.zName = "faulty";
    vfs.pNext = nullptr;
    vfs.szOsFile = static_cast<int>(sizeof(FaultyFile)) + g_real->szOsFile;
    vfs.xOpen = Open;
    vfs.xDelete = Delete;
    vfs.xGetLastError = GetLastError;
    sqlite3_vfs_register(&vfs, /*makeDflt=*/1);
  }
  g_faulty->Heal();
  g_faulty->set_durable_directory("");
  return g_faulty;
}

int FaultyVfs::BeforeOperation() {
  ++operations_;
  if (remaining_ == kNever) return SQLITE_OK;
  if (remaining_ > 0) {
    --remaining_;
    return SQLITE_OK;
  }
  return code_;
}

void FaultyVfs::AfterSync(const std::string& path) const {
  if (durable_directory_.empty() || path.empty()) return;
  const std::filesystem::path source(path);
  std::filesystem::copy_file(source, std::filesystem::path(durable_directory_) / source.filename(),
                             std::filesystem::copy_options::overwrite_existing);
}

void FaultyVfs::AfterSyncedDelete(const std::string& path) const {
  if (durable_directory_.empty()) return;
  std::filesystem::remove(std::filesystem::path(durable_directory_) /
                          std::filesystem::path(path).filename());
}

}  // namespace megatrain
