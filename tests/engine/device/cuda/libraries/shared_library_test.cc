// Where libraries are looked for, in directories made for it, with the system's own loader.
#include "engine/device/cuda/libraries/shared_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

namespace fs = std::filesystem;

constexpr char kBuilt[] = "tests/engine/device/cuda/libraries/libmegatrain_fake.so.1";
constexpr char kName[] = "libmegatrain_fake.so.1";

class SharedLibraryTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  // A library that is there is found by its name from then on.
  void TearDown() override {
    for (void* handle : opened_) dlclose(handle);
  }

  // A directory of the test's own root.
  std::string Directory(const std::string& path) {
    fs::create_directories(root_ + path);
    return root_ + path;
  }
  void PutLibrary(const std::string& directory) {
    fs::copy_file(kBuilt, Directory(directory) + "/" + kName);
  }
  void PutBroken(const std::string& directory) {
    std::ofstream(Directory(directory) + "/" + kName) << "not a library";
  }
  absl::StatusOr<SharedLibrary> Open(LibraryEnvironment environment = {},
                                     const LibrarySuits& suits = nullptr) {
    environment.root = root_;
    absl::StatusOr<SharedLibrary> library =
        OpenSharedLibrary(kName, LibraryPlaces(environment), suits);
    if (library.ok()) opened_.push_back(library->handle);
    return library;
  }

  const std::string root_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();

 private:
  std::vector<void*> opened_;
};

TEST_F(SharedLibraryTest, EveryPlaceIsToldWhereThereIsNone) {
  Directory("/opt/tool/bin");
  std::ofstream(root_ + "/opt/tool/bin/python3") << "";
  const absl::Status status =
      Open({.virtual_env = "/venv", .path = "/nowhere:/opt/tool/bin", .home = "/home/me"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string packages = "/lib/python3*/{site,dist}-packages/nvidia/*/lib";
  std::string places;
  for (const std::string& place :
       {std::string("/usr/local/cuda/lib64"), std::string("/usr/local/cuda/lib"),
        std::string("/usr/local/cuda-13*/lib64"), std::string("/usr/local/cuda-13*/lib"),
        std::string("/usr/local/nvidia/lib64"), std::string("/usr/local/nvidia/lib"),
        "/venv" + packages, "/opt/tool" + packages, "/usr/local" + packages, "/usr" + packages,
        "/home/me/.local" + packages}) {
    places += (places.empty() ? "" : ", ") + root_ + place;
  }
  EXPECT_EQ(status.message(),
            std::string(kName) +
                " is not found; looked for by its name (LD_LIBRARY_PATH, ldconfig) and in " +
                places);
}

TEST_F(SharedLibraryTest, ToolkitsComeBeforePythonsAndNewerOnesFirst) {
  for (const char* directory :
       {"/usr/local/cuda-13.9/lib64", "/usr/local/cuda-13.10/lib64", "/usr/local/cuda-12.9/lib64",
        "/usr/lib/python3/dist-packages/nvidia/cudnn/lib",
        "/usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib",
        "/venv/lib/python3.11/site-packages/nvidia/cu13/lib"}) {
    PutBroken(directory);
  }
  std::vector<std::string> files;
  for (const std::string& file :
       FindLibraryFiles(kName, LibraryPlaces({.root = root_, .virtual_env = "/venv"}))) {
    files.push_back(fs::path(file.substr(root_.size())).parent_path());
  }
  EXPECT_THAT(files, ElementsAre("/usr/local/cuda-13.10/lib64", "/usr/local/cuda-13.9/lib64",
                                 "/venv/lib/python3.11/site-packages/nvidia/cu13/lib",
                                 "/usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib",
                                 "/usr/lib/python3/dist-packages/nvidia/cudnn/lib"));
}

// As where python3 is a link to a version that lies elsewhere.
TEST_F(SharedLibraryTest, ThePackagesOfThePythonOnThePathAreFound) {
  PutLibrary("/opt/py312/lib/python3.12/site-packages/nvidia/cudnn/lib");
  Directory("/opt/py312/bin");
  std::ofstream(root_ + "/opt/py312/bin/python3.12") << "";
  Directory("/bin");
  fs::create_symlink(root_ + "/opt/py312/bin/python3.12", root_ + "/bin/python3");
  const auto library = Open({.path = "/bin"});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->path, fs::canonical(root_).string() +
                               "/opt/py312/lib/python3.12/site-packages/nvidia/cudnn/lib/" + kName);
  EXPECT_EQ(library->Describe(), library->path);
  const auto answer = reinterpret_cast<int (*)()>(dlsym(library->handle, "Answer"));
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer(), 42);
}

TEST_F(SharedLibraryTest, AFilesNameHasAVersionOrNone) {
  const std::string directory = Directory("/lib");
  std::ofstream(directory + "/libcudnn.so.9.14.0") << "";
  fs::create_symlink("libcudnn.so.9.14.0", directory + "/libcudnn.so.9");
  std::ofstream(directory + "/libplain.so.9") << "";
  EXPECT_THAT(VersionInName(directory + "/libcudnn.so.9"), Optional(ElementsAre(9, 14, 0)));
  EXPECT_EQ(VersionInName(directory + "/libplain.so.9"), std::nullopt);
  EXPECT_EQ(VersionInName(directory + "/libmissing.so.9"), std::nullopt);
}

// As where the system has an older cuDNN than Python's packages.
TEST_F(SharedLibraryTest, OneThatDoesNotSuitIsClosedAndLaterPlacesAreTried) {
  PutLibrary("/usr/local/cuda/lib64");
  PutLibrary("/venv/lib/python3.12/site-packages/nvidia/cudnn/lib");
  const auto old = [](const SharedLibrary& library) {
    return absl::StrContains(library.path, "/cuda/lib64/")
               ? absl::FailedPreconditionError(library.path + " is old")
               : absl::OkStatus();
  };
  const std::string said = fs::canonical(root_).string() + "/usr/local/cuda/lib64/" + kName;
  const absl::Status none = Open({}, old).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()), HasSubstr(" cannot be used: " + said + " is old; "));
  const auto library = Open({.virtual_env = "/venv"}, old);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_THAT(library->path, HasSubstr("/venv/lib/python3.12/"));
  EXPECT_THAT(library->Describe(), HasSubstr("passed over: " + said + " is old"));
  EXPECT_EQ(dlopen(said.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << "it is still loaded";
}

// The loader's words are kept where another place has one that can be loaded, and where none has.
TEST_F(SharedLibraryTest, OneThatCannotBeLoadedIsTold) {
  PutBroken("/usr/local/cuda/lib64");
  const std::string broken = root_ + "/usr/local/cuda/lib64/" + kName;
  const absl::Status none = Open().status();
  EXPECT_THAT(none.message(), HasSubstr("cannot be used: " + broken + ": "));
  EXPECT_THAT(none.message(), Not(HasSubstr("is not found")));
  PutLibrary("/usr/local/nvidia/lib64");
  const auto library = Open();
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_THAT(library->Describe(), HasSubstr("/usr/local/nvidia/lib64/" + std::string(kName) +
                                             "; passed over: " + broken + ": "));
}

TEST_F(SharedLibraryTest, TheFirstFunctionThatIsMissingIsTold) {
  PutLibrary("/usr/local/cuda/lib64");
  const auto library = Open();
  ASSERT_TRUE(library.ok()) << library.status();
  FunctionFinder find(library->handle);
  int (*answer)() = nullptr;
  find(answer, "Answer");
  EXPECT_EQ(find.missing(), nullptr);
  int (*question)() = answer, (*doubt)() = answer;
  find(question, "Question");
  find(doubt, "Doubt");
  EXPECT_STREQ(find.missing(), "Question");
  EXPECT_EQ(question, nullptr);
  EXPECT_EQ(answer(), 42);
}

TEST(LibraryEnvironmentTest, IsThatOfTheProcess) {
  setenv("VIRTUAL_ENV", "/a/venv", 1);
  setenv("HOME", "/a/home", 1);
  setenv("PATH", "/a/bin:/b/bin", 1);
  const LibraryEnvironment environment = LibraryEnvironment::OfThisProcess();
  EXPECT_EQ(environment.root, "");
  EXPECT_EQ(environment.virtual_env, "/a/venv");
  EXPECT_EQ(environment.path, "/a/bin:/b/bin");
  EXPECT_EQ(environment.home, "/a/home");
  unsetenv("VIRTUAL_ENV");
  EXPECT_EQ(LibraryEnvironment::OfThisProcess().virtual_env, "");
}

}  // namespace
}  // namespace megatrain
