-- Workers ask it before they read for a key. Run once by migration 0009.

GRANT EXECUTE ON FUNCTION tenants_key_refusal TO headrace_housekeeper;
