// The contract's house rules: everything but an enum's value has a comment, and names are as Google's API improvement proposals
// and `buf lint` want them, so that generated code in every language reads well.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "gtest/gtest.h"

namespace ridgeline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::SourceLocation;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsPascalCase(const std::string& name) {
  return IsUpper(name[0]) && std::ranges::all_of(name, [](char c) { return IsLower(c) || IsUpper(c) || IsDigit(c); });
}

bool IsLowerSnakeCase(const std::string& name) {
  return IsLower(name[0]) && name.find("__") == std::string::npos && name.back() != '_' &&
         std::ranges::all_of(name, [](char c) { return IsLower(c) || IsDigit(c) || c == '_'; });
}

// DataType -> DATA_TYPE_
std::string EnumPrefix(const std::string& name) {
  std::string prefix;
  for (const char c : name) {
    if (IsUpper(c) && !prefix.empty()) prefix += '_';
    prefix += IsLower(c) ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return prefix + "_";
}

// Collects what is wrong with one file, a line each.
class Inspection {
 public:
  static std::vector<std::string> Of(const FileDescriptor& file) {
    Inspection inspection;
    inspection.InspectFile(file);
    return inspection.faults_;
  }

 private:
  template <typename Entity>
  void Require(bool condition, const Entity& entity, std::string_view fault) {
    if (!condition) faults_.push_back(std::string(entity.full_name()) + ": " + std::string(fault));
  }

  template <typename Entity>
  void RequireComment(const Entity& entity) {
    SourceLocation location;
    const bool found = entity.GetSourceLocation(&location);
    Require(found && !(location.leading_comments + location.trailing_comments).empty(), entity, "has no comment");
  }

  void InspectFile(const FileDescriptor& file) {
    const std::string folder = std::filesystem::path(file.name()).parent_path();
    std::string package = file.package();
    std::ranges::replace(package, '.', '/');
    if (package != folder) faults_.push_back(file.name() + ": package " + file.package() + " doesn't match its folder");
    if (file.syntax() != FileDescriptor::SYNTAX_PROTO3) faults_.push_back(file.name() + ": isn't proto3");
    for (int i = 0; i < file.message_type_count(); ++i) InspectMessage(*file.message_type(i));
    for (int i = 0; i < file.enum_type_count(); ++i) InspectEnum(*file.enum_type(i));
    for (int i = 0; i < file.service_count(); ++i) InspectService(*file.service(i));
  }

  void InspectMessage(const Descriptor& message) {
    RequireComment(message);
    Require(IsPascalCase(message.name()), message, "message isn't in PascalCase");
    Require(message.enum_type_count() == 0, message, "nests an enum; types are top-level");
    for (int i = 0; i < message.nested_type_count(); ++i) {
      Require(message.nested_type(i)->options().map_entry(), *message.nested_type(i), "is nested; types are top-level");
    }
    for (int i = 0; i < message.field_count(); ++i) {
      RequireComment(*message.field(i));
      Require(IsLowerSnakeCase(message.field(i)->name()), *message.field(i), "field isn't in lower_snake_case");
    }
    for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
      Require(IsLowerSnakeCase(message.oneof_decl(i)->name()), *message.oneof_decl(i), "oneof isn't in lower_snake_case");
    }
  }

  void InspectEnum(const EnumDescriptor& type) {
    RequireComment(type);
    Require(IsPascalCase(type.name()), type, "enum isn't in PascalCase");
    const std::string prefix = EnumPrefix(type.name());
    Require(type.value(0)->number() == 0 && type.value(0)->name() == prefix + "UNSPECIFIED", type,
            "first value isn't " + prefix + "UNSPECIFIED = 0");
    for (int i = 0; i < type.value_count(); ++i) {
      Require(type.value(i)->name().starts_with(prefix), *type.value(i), "value doesn't begin with " + prefix);
    }
  }

  void InspectService(const ServiceDescriptor& service) {
    RequireComment(service);
    Require(IsPascalCase(service.name()) && service.name().ends_with("Service"), service,
            "service isn't named SomethingService");
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      RequireComment(method);
      Require(IsPascalCase(method.name()), method, "RPC isn't in PascalCase");
    }
  }

  std::vector<std::string> faults_;
};

// What protoc makes of the files below `root`, comments included. Paths are relative to it.
class Contract {
 public:
  Contract(const std::filesystem::path& root, const std::vector<std::string>& paths) {
    const std::string descriptors =
        ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".binpb";
    std::string command = std::string(RIDGELINE_PROTOC) +
                          " --include_imports --include_source_info --descriptor_set_out=" + descriptors +
                          " --proto_path=" + root.string();
    for (const std::string& path : paths) command += " " + path;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    google::protobuf::FileDescriptorSet set;
    std::ifstream file(descriptors, std::ios::binary);
    EXPECT_TRUE(set.ParseFromIstream(&file)) << descriptors;
    std::filesystem::remove(descriptors);
    for (const auto& proto : set.file()) pool_.BuildFile(proto);
    for (const std::string& path : paths) files_.push_back(pool_.FindFileByName(path));
  }

  std::vector<std::string> Faults() const {
    std::vector<std::string> faults;
    for (const FileDescriptor* file : files_) {
      if (file == nullptr) return {"doesn't parse"};
      for (const std::string& fault : Inspection::Of(*file)) faults.push_back(fault);
    }
    return faults;
  }

 private:
  DescriptorPool pool_;
  std::vector<const FileDescriptor*> files_;
};

TEST(ProtoStyleTest, ContractFollowsTheRules) {
  const std::filesystem::path root = RIDGELINE_SOURCE_DIR "/proto";
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "ridgeline")) {
    if (entry.path().extension() == ".proto") paths.push_back(entry.path().lexically_relative(root));
  }
  ASSERT_THAT(paths, SizeIs(Ge(1)));
  EXPECT_THAT(Contract(root, paths).Faults(), IsEmpty());
}

// Writes a file into a folder of its own and inspects it.
class PlantedFaultTest : public ::testing::Test {
 protected:
  ~PlantedFaultTest() override { std::filesystem::remove_all(root_); }

  std::vector<std::string> FaultsOf(const std::string& body, const std::string& syntax = "proto3") {
    std::filesystem::create_directories((root_ / path_).parent_path());
    std::ofstream(root_ / path_) << "syntax = \"" << syntax << "\";\npackage ridgeline.v1;\n" << body;
    return Contract(root_, {path_}).Faults();
  }

  std::string path_ = "ridgeline/v1/planted.proto";

 private:
  const std::filesystem::path root_ = ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(PlantedFaultTest, NoneInAFileThatFollowsTheRules) {
  EXPECT_THAT(FaultsOf(R"(
// A service.
service WellNamedService {
  // A call.
  rpc DoIt(DoItRequest) returns (DoItRequest);
}
// A message.
message DoItRequest {
  oneof which_one {
    int32 first_one = 1;  // A field, commented behind.
    // A field, commented above.
    string second_2 = 2;
  }
  // A map.
  map<string, int64> counts = 3;
  optional bool set = 4;  // A field.
  DataType type = 5;      // A field.
}
// An enum.
enum DataType {
  // The default.
  DATA_TYPE_UNSPECIFIED = 0;
  DATA_TYPE_FLOAT8_E4M3 = 1;  // A value.
}
)"),
              IsEmpty());
}

TEST_F(PlantedFaultTest, MissingComments) {
  EXPECT_THAT(
      FaultsOf(R"(
message M {
  int32 a = 1;
}
enum E {
  E_UNSPECIFIED = 0;
}
service XService {
  rpc Call(M) returns (M);
}
)"),
      ElementsAre("ridgeline.v1.M: has no comment", "ridgeline.v1.M.a: has no comment", "ridgeline.v1.E: has no comment",
                  "ridgeline.v1.XService: has no comment", "ridgeline.v1.XService.Call: has no comment"));
}

TEST_F(PlantedFaultTest, NamesInTheWrongCase) {
  for (const char* body : {"// c\nmessage snake_case {}", "// c\nmessage M {\n  int32 camelCase = 1;  // c\n}",
                           "// c\nmessage M {\n  int32 two__scores = 1;  // c\n}",
                           "// c\nmessage M {\n  oneof Case {\n    int32 a = 1;  // c\n  }\n}",
                           "// c\nenum lower {\n  LOWER_UNSPECIFIED = 0;\n}"}) {
    EXPECT_THAT(FaultsOf(body), SizeIs(1)) << body;
  }
  EXPECT_THAT(FaultsOf("// c\nmessage M {\n  int32 camelCase = 1;  // c\n}"),
              ElementsAre("ridgeline.v1.M.camelCase: field isn't in lower_snake_case"));
}

TEST_F(PlantedFaultTest, EnumValuesWithoutPrefixOrZero) {
  EXPECT_THAT(FaultsOf("// c\nenum DataType {\n  FLOAT = 0;  // c\n}"),
              ElementsAre("ridgeline.v1.DataType: first value isn't DATA_TYPE_UNSPECIFIED = 0",
                          "ridgeline.v1.FLOAT: value doesn't begin with DATA_TYPE_"));
}

TEST_F(PlantedFaultTest, NestedTypes) {
  EXPECT_THAT(FaultsOf("// c\nmessage M {\n  // c\n  message Inner {}\n}"),
              ElementsAre("ridgeline.v1.M.Inner: is nested; types are top-level"));
  EXPECT_THAT(FaultsOf("// c\nmessage M {\n  // c\n  enum Inner {\n    INNER_UNSPECIFIED = 0;  // c\n  }\n}"),
              ElementsAre("ridgeline.v1.M: nests an enum; types are top-level"));
}

TEST_F(PlantedFaultTest, ServiceWithoutItsSuffix) {
  EXPECT_THAT(FaultsOf("// c\nservice Attention {}"),
              ElementsAre("ridgeline.v1.Attention: service isn't named SomethingService"));
}

TEST_F(PlantedFaultTest, AnotherFolderOrSyntax) {
  EXPECT_THAT(FaultsOf("", "proto2"), ElementsAre(HasSubstr("isn't proto3")));
  path_ = "ridgeline/v2/planted.proto";
  EXPECT_THAT(FaultsOf(""), ElementsAre(HasSubstr("package ridgeline.v1 doesn't match its folder")));
}

}  // namespace
}  // namespace ridgeline
