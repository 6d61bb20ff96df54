local loaded = {}

-- Returns the part with this name. It is defined once, and only in calls that need it; the usual cases call `define`,
-- which remembers nothing.
function require(name)
  loaded[name] = loaded[name] or define(name)
  return loaded[name]
end
