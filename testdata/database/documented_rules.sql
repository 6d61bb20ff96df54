-- The documented table, verbatim.
CREATE TABLE rate_limit_rules (
    id              UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name            VARCHAR(255) NOT NULL,
    
    -- Matching
    key_pattern     VARCHAR(255) NOT NULL,   -- "tenant:{api_key}"
    scope           VARCHAR(20) NOT NULL,    -- global, tenant, user, ip, endpoint
    
    -- Algorithm
    algorithm       VARCHAR(30) NOT NULL,    -- fixed_window, sliding_window, token_bucket
    
    -- Limits
    limit_count     INTEGER NOT NULL,        -- 1000
    window_seconds  INTEGER NOT NULL,        -- 60
    burst_limit     INTEGER,                 -- 1200 (token bucket only)
    refill_rate     DECIMAL,                 -- tokens/sec (token bucket only)
    
    -- Targeting
    plan_tiers      VARCHAR[] DEFAULT '{}',  -- {free, pro} or {} for all
    endpoints       VARCHAR[] DEFAULT '{}',  -- {/api/search} or {} for all
    
    -- Behavior
    action          VARCHAR(20) DEFAULT 'reject',  -- reject, throttle, log_only
    priority        INTEGER DEFAULT 100,     -- Lower = evaluated first
    enabled         BOOLEAN DEFAULT TRUE,
    
    created_at      TIMESTAMPTZ DEFAULT NOW(),
    updated_at      TIMESTAMPTZ DEFAULT NOW()
);
