// The folders of the sources, read as a graph whose arrows are #include lines: no circles, no arrow
// from a lower layer to a higher one, no crowded folder. A test named after a source lies in the
// folder of that name beneath tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTops[] = {"engine", "server", "client"};
constexpr int kSourcesMax = 26;  // of a folder

struct Graph {
  // By folder: the folders that its sources include, each with one such line.
  std::map<std::string, std::map<std::string, std::string>> arrows;
  std::map<std::string, int> sources;
};

bool IsSource(const fs::path& path) {
  const std::string extension = path.extension();
  return extension == ".h" || extension == ".cc" || extension == ".cu";
}

// Among the test's data WORKSPACE is a link to the file of the source tree.
fs::path Root() { return fs::canonical("WORKSPACE").parent_path(); }

Graph ReadGraph() {
  const fs::path root = Root();
  Graph graph;
  for (const char* const top : kTops) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      const std::string file = fs::relative(entry.path(), root);
      const std::string folder = fs::path(file).parent_path();
      ++graph.sources[folder];
      graph.arrows[folder];
      std::ifstream lines(entry.path());
      for (std::string line; std::getline(lines, line);) {
        constexpr char kInclude[] = "#include \"";
        if (!absl::StartsWith(line, kInclude)) continue;
        const size_t begin = sizeof(kInclude) - 1;
        const std::string included = line.substr(begin, line.rfind('"') - begin);
        const std::string other = fs::path(included).parent_path();
        if (other == folder || !fs::exists(root / included)) continue;
        graph.arrows[folder].emplace(other, absl::StrCat(file, " includes ", included));
      }
    }
  }
  return graph;
}

// Folders without arrows into what is left are taken away; what stays lies on circles or before
// them.
std::set<std::string> OnCircles(const Graph& graph) {
  std::set<std::string> left;
  for (const auto& [folder, arrows] : graph.arrows) left.insert(folder);
  const auto ends = [&](const std::string& folder) {
    for (const auto& [other, line] : graph.arrows.at(folder)) {
      if (left.contains(other)) return false;
    }
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto folder = left.begin(); folder != left.end();) {
      const bool taken = ends(*folder);
      changed |= taken;
      folder = taken ? left.erase(folder) : std::next(folder);
    }
  }
  return left;
}

TEST(IncludeGraphTest, NoCircleBetweenFolders) {
  const Graph graph = ReadGraph();
  ASSERT_GT(graph.sources.size(), 20u) << "the sources were not found";
  const std::set<std::string> circles = OnCircles(graph);
  for (const std::string& folder : circles) {
    for (const auto& [other, line] : graph.arrows.at(folder)) {
      if (circles.contains(other)) ADD_FAILURE() << line;
    }
  }
}

TEST(IncludeGraphTest, NoFolderIsCrowded) {
  for (const auto& [folder, sources] : ReadGraph().sources) {
    EXPECT_LE(sources, kSourcesMax) << folder << ": find what belongs together in it";
  }
}

// From the folder on the left, and those beneath it, nothing on the right is included.
TEST(IncludeGraphTest, NoArrowPointsUpwards) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> kForbidden = {
      {"engine", {"server", "client"}},
      // The engine's inside: the server sees engine.h, values, and what reads and reports files.
      {"server",
       {"engine/run", "engine/trainer", "engine/plan", "engine/pipeline", "engine/model",
        "engine/optim", "engine/tokenizer", "engine/chat", "engine/data/records"}},
      {"client",
       {"server/api", "server/daemon", "server/jobs", "server/manager", "engine/run", "engine/host",
        "engine/job", "engine/trace", "engine/device", "engine/memory", "engine/config"}},
      {"engine/base", {"engine"}},
      {"engine/memory", {"engine/model", "engine/pipeline", "engine/job"}},
      {"engine/model", {"engine/hf", "engine/pipeline", "engine/data"}},
      {"engine/device", {"engine/comm", "engine/model", "engine/pipeline", "engine/job"}},
      {"engine/comm", {"engine/memory", "engine/model", "engine/pipeline", "engine/job"}},
      {"engine/job", {"engine/device", "engine/data", "engine/model"}},
      {"engine/tokenizer", {"engine/chat", "engine/data"}},
      {"engine/pipeline",
       {"engine/plan", "engine/trainer", "engine/run", "engine/host", "engine/checkpoint"}},
      {"engine/plan", {"engine/trainer", "engine/run"}},
      {"engine/trainer", {"engine/run", "engine/checkpoint", "engine/hf"}},
      {"server/jobs", {"server/store", "server/manager", "server/scheduler"}},
      {"server/store", {"server/manager", "server/scheduler"}},
      {"server/transport", {"server/api", "server/jobs", "server/manager", "engine/run"}},
      {"server/launch", {"server/commands", "server/api", "server/jobs", "server/manager"}},
      {"server/identity", {"server/jobs", "server/transport", "server/api"}},
  };
  const auto beneath = [](const std::string& folder, const std::string& of) {
    return folder == of || absl::StartsWith(folder, of + "/");
  };
  for (const auto& [folder, arrows] : ReadGraph().arrows) {
    for (const auto& [other, line] : arrows) {
      for (const auto& [lower, uppers] : kForbidden) {
        if (!beneath(folder, lower) || beneath(other, lower)) continue;
        for (const std::string& upper : uppers) {
          EXPECT_FALSE(beneath(other, upper)) << line;
        }
      }
    }
  }
}

TEST(IncludeGraphTest, TestsLieWhereTheirSourcesLie) {
  const fs::path root = Root();
  std::map<std::string, std::set<std::string>> folders;  // by name of a source
  for (const char* const top : kTops) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / top)) {
      if (!IsSource(entry.path())) continue;
      folders[entry.path().stem()].insert(fs::relative(entry.path().parent_path(), root));
    }
  }
  for (const char* const top : kTops) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(root / "tests" / top)) {
      const std::string stem = entry.path().stem();
      if (!IsSource(entry.path()) || !absl::EndsWith(stem, "_test")) continue;
      const auto found = folders.find(std::string(absl::StripSuffix(stem, "_test")));
      if (found == folders.end()) continue;
      const std::string folder = fs::relative(entry.path().parent_path(), root / "tests");
      EXPECT_TRUE(found->second.contains(folder))
          << entry.path() << " belongs to tests/" << *found->second.begin();
    }
  }
}

}  // namespace
}  // namespace megatrain
